import torch
import torch.nn.functional as F


def gan_step(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    """Train the discriminator once, then the generator once; return both losses as floats."""
    opt_d.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        d_loss = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
        d_loss = d_loss + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
    scaler.scale(d_loss).backward()
    scaler.step(opt_d)

    opt_g.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        judged = discriminator(fake)
        g_loss = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
    return d_loss.item(), g_loss.item()
