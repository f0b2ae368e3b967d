"""A client's time and energy for computing and uploading. Paper: Sections IV-A and IV-B."""
