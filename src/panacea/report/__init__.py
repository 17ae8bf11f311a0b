"""Pages and figures. Imported after training, never before."""
