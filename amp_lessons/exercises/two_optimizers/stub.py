def gan_step(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    """Train the discriminator once, then the generator once; return (d_loss, g_loss) as floats."""
    raise NotImplementedError
