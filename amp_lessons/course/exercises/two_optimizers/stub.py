def gan_step(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    """Train each of the two once, in either order; return (d_loss, g_loss) as floats."""
    raise NotImplementedError
