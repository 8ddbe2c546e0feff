"""How ranks start, meet and speak: MPI, `jax.distributed`, a mesh of devices, or one
process."""
