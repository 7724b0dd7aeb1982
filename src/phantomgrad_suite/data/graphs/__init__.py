"""Data sets of graphs: to classify whole graphs, or their nodes."""
