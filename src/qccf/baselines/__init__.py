"""The four policies that the paper compares with. Paper: Section VI."""
