"""Tables and figures, made from the records of finished runs and the paper's numbers alone."""
