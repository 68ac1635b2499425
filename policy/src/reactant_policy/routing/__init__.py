"""Which worker gets a request, whether it may be tried elsewhere, and who counts as reachable."""
