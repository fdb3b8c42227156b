"""The report of a results directory: one HTML file and one of Markdown, from the stored results alone."""
