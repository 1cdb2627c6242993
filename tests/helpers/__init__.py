"""What several tests share: endpoint pairs, small runs, example and faulty transports, reference solutions."""
