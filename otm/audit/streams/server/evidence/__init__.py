"""Evidence about a server's tokens, and the mistakes that explain a deviation."""
