"""Measurements that train nothing."""
