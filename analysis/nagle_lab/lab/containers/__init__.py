"""The container engine: Docker and Compose as child processes, images, and what abandoned runs left."""
