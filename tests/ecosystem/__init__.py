"""Programs of other libraries, as their documentation tells users to compile them, judged against eager."""
