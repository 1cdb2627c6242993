"""What every reliable transport needs to notice and mend loss: RTT, ranges, RACK-TLP, PRR."""
