"""What makes leases happen: from their schedule to operations on servers."""
