"""Real models for the server: each a bundle builder, and a client that shows them at work.

Importing this package (or its catalogue) loads neither JAX nor scikit-learn, so that a start-up which has
nothing to build stays quick.
"""
