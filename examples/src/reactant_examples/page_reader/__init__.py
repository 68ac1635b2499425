"""The digits on a page: a meta model that finds them with one model and reads them with another."""
