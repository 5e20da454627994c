"""Tables, side-by-side comparisons and charts that commands print or write."""
