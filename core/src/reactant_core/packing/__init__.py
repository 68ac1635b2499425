"""The scheduling of a fleet, whoever hosts it: a gateway alone, or the registry's leader."""
