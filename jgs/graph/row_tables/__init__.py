"""How feature rows are stored: one file for each way, all by the contract `RowTable`."""
