"""Everything with weights: store, ears, policies, training and export."""
