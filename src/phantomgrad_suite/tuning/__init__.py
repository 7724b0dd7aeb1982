"""Settings chosen on validation data by Optuna (``tune=lambda``); each trial is ordinary runs."""
