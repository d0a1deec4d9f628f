"""The order of groups: dependencies between them, and candidate orders that may need less memory than eager's."""
