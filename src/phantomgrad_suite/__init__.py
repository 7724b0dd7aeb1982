"""The experiments: Hydra composes them, Lightning trains them, records keep what came out."""
