"""The lab: measures Nervure and its peers under the same conditions, and writes reports that others can repeat."""
