"""The topics: what topics/*.yaml says of them, a cluster's, made and compared, and the schemas in one of them."""
