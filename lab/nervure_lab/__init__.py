"""The lab: measures Nervure and its peers under the same conditions."""
