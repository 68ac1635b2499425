"""Model bundles: a directory with a manifest, compiled programs, weights and, if it likes, hooks.

`repository` finds and reads them, `manifest` and `weights` read the two files whose content they
check, `signature` compares a program with both. Nothing here needs JAX or runs a bundle's code.
"""
