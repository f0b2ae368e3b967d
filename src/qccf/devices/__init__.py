"""Time and energy of computing and uploading on a client. Paper: Sections IV-A and IV-B."""
