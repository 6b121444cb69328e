"""A second reading of the protocol that shares no code with the product: two mistakes must agree to hide."""
