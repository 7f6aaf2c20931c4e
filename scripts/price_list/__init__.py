"""AWS's price list: where each item of the budget room's table is in it, and writing its answer into the table."""
