"""Tables, figures and a page of all results, made from records and the paper's numbers."""
