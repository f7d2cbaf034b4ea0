//! What is left of a network without others. Knows no object of Kubernetes.

use std::ops::ControlFlow;

use ipnet::IpNet;

/// The networks that are left of a network without the exceptions, in the order of their addresses:
/// as few as there can be. OVN makes a flow of each. Of `!= {…}` it makes one for each bit of an
/// exception, and of several exceptions the product.
pub fn remainder(net: IpNet, except: &[IpNet]) -> Vec<IpNet> {
    let mut left = Vec::new();
    let _ = each_of_remainder(net, except, &mut |net| {
        left.push(net);
        ControlFlow::Continue(())
    });
    left
}

/// How many networks are left; more than `most` are not counted.
pub fn size_of_remainder(net: IpNet, except: &[IpNet], most: usize) -> usize {
    let mut size = 0;
    let _ = each_of_remainder(net, except, &mut |_| {
        size += 1;
        if size > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    size
}

/// Passes each of them to `found`, until that breaks.
fn each_of_remainder(
    net: IpNet,
    except: &[IpNet],
    found: &mut impl FnMut(IpNet) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut except: Vec<IpNet> =
        except.iter().copied().filter(|other| overlap(net, *other)).collect();
    except.sort_unstable();
    split(net, &except, found)
}

fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Passes what is left of `net` to `found`. `except`: sorted, and each overlaps `net`.
fn split(
    net: IpNet,
    except: &[IpNet],
    found: &mut impl FnMut(IpNet) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if except.is_empty() {
        return found(net);
    }
    if except.iter().any(|other| other.contains(&net)) {
        return ControlFlow::Continue(());
    }
    // Each exception is inside of one half.
    let halves = net.subnets(net.prefix_len() + 1).into_iter().flatten();
    let mut rest = except;
    for half in halves {
        let (own, others) = rest.split_at(rest.partition_point(|other| half.contains(other)));
        rest = others;
        split(half, own, found)?;
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn everything_but_the_private_networks_is_31_networks() {
        let private = nets(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]);
        let left = remainder("0.0.0.0/0".parse().unwrap(), &private);
        assert_eq!(left[..3], nets(&["0.0.0.0/5", "8.0.0.0/7", "11.0.0.0/8"])[..]);
        assert_eq!(left.len(), 31);
    }

    #[test]
    fn a_network_within_its_exception_has_nothing_left_and_others_exceptions_take_nothing() {
        let net: IpNet = "10.1.0.0/16".parse().unwrap();
        assert_eq!(remainder(net, &nets(&["10.0.0.0/8"])), []);
        assert_eq!(remainder(net, &nets(&["10.1.0.0/17", "10.1.128.0/17"])), []);
        assert_eq!(remainder(net, &nets(&["10.2.0.0/16", "fd00::/8"])), [net]);
    }

    #[test]
    fn the_count_ends_at_the_bound() {
        let count =
            |most| size_of_remainder("::/0".parse().unwrap(), &nets(&["fd00::1/128"]), most);
        assert_eq!((count(1000), count(5)), (128, 6));
    }

    proptest! {
        #[test]
        fn an_address_is_in_one_of_them_if_it_is_in_the_network_and_in_no_exception(
            length in 0_u8..9, first in any::<u32>(),
            except in proptest::collection::vec((any::<u32>(), 0_u8..=32), 0..8), probe in any::<u32>(),
        ) {
            let net = |address: u32, length: u8| {
                IpNet::new(std::net::Ipv4Addr::from(address).into(), length).unwrap().trunc()
            };
            let whole = net(first, length);
            let near = |address: u32, length: u8| {
                let kept = u32::MAX.checked_shr(length.into()).unwrap_or_default();
                net(address & kept | first & !kept, length)
            };
            let except: Vec<IpNet> = except.into_iter().map(|(address, length)| near(address, length)).collect();
            let left = remainder(whole, &except);
            let ends = except.iter().flat_map(|net| [net.network(), net.broadcast()]);
            let probe = std::net::Ipv4Addr::from(probe).into();
            for address in ends.chain([whole.network(), probe]) {
                let wanted = whole.contains(&address) && !except.iter().any(|net| net.contains(&address));
                prop_assert_eq!(left.iter().filter(|net| net.contains(&address)).count(), usize::from(wanted));
            }
            prop_assert_eq!(left.len(), IpNet::aggregate(&left).len());
        }
    }
}
