"""Where on a page handwritten digits are: a matched filter, for metas only."""
