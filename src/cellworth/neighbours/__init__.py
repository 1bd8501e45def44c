"""The K-nearest-neighbour game in closed form: distances, chances by rank, rankings, kernels."""
