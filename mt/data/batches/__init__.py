"""Ids to padded batches with masks, in an order that is a function of (seed, epoch)."""
