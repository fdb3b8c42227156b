"""The Sobel operation on camera images, alone and in the graph of a robot."""
