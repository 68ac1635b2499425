"""Handwritten digits: a small convolutional network trained here, in seconds, from 8 x 8 pictures."""
