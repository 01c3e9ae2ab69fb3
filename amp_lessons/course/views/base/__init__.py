"""What every view is made of: pictures, controls, style."""
