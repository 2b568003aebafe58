//! A rank as it introduces itself to others.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// First bytes of every connection.
const GREETING: &[u8; 8] = b"mae-rk01";

/// A rank as it introduces itself.
pub(super) struct Member {
    pub(super) rank: usize,
    pub(super) address: SocketAddr,
    pub(super) name: String,
}

/// A member as it travels: greeting, rank, number of ranks, address, name.
pub(super) fn bytes_of(member: &Member, size: usize) -> Vec<u8> {
    let ip = match member.address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let name = &member.name.as_bytes()[..member.name.len().min(255)];
    let numbers = [member.rank as u32, size as u32].map(u32::to_le_bytes).concat();
    let port = member.address.port().to_le_bytes();
    [&GREETING[..], &numbers, &ip, &port, &[name.len() as u8], name].concat()
}

/// The next member of a connection; an error if its run has another size.
pub(super) fn read_member(stream: &mut TcpStream, size: usize) -> io::Result<Member> {
    let mut head = [0; 35];
    stream.read_exact(&mut head)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    if &head[..8] != GREETING || number(12) != size || number(8) >= size {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another program, or a run of another size"));
    }
    let octets: [u8; 16] = head[16..32].try_into().expect("sixteen bytes");
    let ip = IpAddr::from(octets).to_canonical();
    let mut name = vec![0; head[34].into()];
    stream.read_exact(&mut name)?;
    let address = SocketAddr::new(ip, u16::from_le_bytes([head[32], head[33]]));
    Ok(Member { rank: number(8), address, name: String::from_utf8_lossy(&name).into_owned() })
}

/// The introduction of whoever has connected, at the address that it has connected from.
pub(super) fn receive_member(stream: &mut TcpStream, size: usize) -> io::Result<Member> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut member = read_member(stream, size)?;
    stream.set_read_timeout(None)?;
    member.address.set_ip(stream.peer_addr()?.ip().to_canonical());
    Ok(member)
}
