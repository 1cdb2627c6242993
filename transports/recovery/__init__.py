"""What a reliable transport needs to detect and repair losses: RTT, ranges, RACK-TLP, PRR."""
