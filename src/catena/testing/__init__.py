"""What tests of Catena, and of stores written for it, are made of."""
