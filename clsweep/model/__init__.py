"""The parts that an objective is made of: encoders and heads."""
