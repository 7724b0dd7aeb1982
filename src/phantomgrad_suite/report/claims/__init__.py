"""The paper's claims: ``results/claims.yaml``, tested with the records."""
