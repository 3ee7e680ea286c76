"""What is installed in images and environments: bills of materials, and whether set-up is reproducible."""
