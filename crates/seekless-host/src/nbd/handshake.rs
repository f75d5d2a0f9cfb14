//! The start of a connection: identification, the export, and the common features.

use super::export::Export;
use super::stream::{Closed, Stream};
use super::wire::{
    FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_BYTES_MAX, OPTION_MAGIC, PAYLOAD_MAX, export, info, option, option_reply,
    reply, take,
};

/// Features agreed with the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Negotiated {
    pub(super) structured: bool,
}

/// Transmission flags of an export.
pub(super) fn flags(offer: &Export, structured: bool) -> u16 {
    let mut flags = export::HAS_FLAGS | export::SEND_FLUSH | export::SEND_FUA | export::CAN_MULTI_CONN;
    if offer.read_only {
        flags |= export::READ_ONLY;
    } else {
        flags |= export::SEND_TRIM | export::SEND_WRITE_ZEROES;
    }
    if structured { flags | export::SEND_DF } else { flags }
}

/// Negotiates until the client starts transmission; `None` when it closed the connection properly.
pub(super) async fn negotiate(stream: &Stream, offer: &Export) -> Result<Option<Negotiated>, Closed> {
    let hello = [&MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()];
    stream.send(&hello.concat()).await?;
    let client = u32::from_be_bytes(stream.number().await?);
    if client & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 || client & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(Closed::Nonsense);
    }
    let wants_padding = client & u32::from(NO_ZEROES) == 0;
    let mut negotiated = Negotiated::default();
    loop {
        if u64::from_be_bytes(stream.number().await?) != OPTION_MAGIC {
            return Err(Closed::Nonsense);
        }
        let number = u32::from_be_bytes(stream.number().await.map_err(Closed::inside)?);
        let length = u32::from_be_bytes(stream.number().await.map_err(Closed::inside)?);
        if length > OPTION_BYTES_MAX {
            if number == option::EXPORT_NAME {
                return Err(Closed::Nonsense); // The protocol has no refusal here.
            }
            stream.skip(u64::from(length)).await?;
            stream.send(&option_reply(number, reply::TOO_BIG, b"this option is too long")).await?;
            continue;
        }
        let mut data = vec![0; length as usize];
        stream.fill(&mut data).await.map_err(Closed::inside)?;
        match number {
            option::EXPORT_NAME => {
                let mut answer = offer.bytes.to_be_bytes().to_vec();
                answer.extend(flags(offer, negotiated.structured).to_be_bytes());
                if wants_padding {
                    answer.extend([0; 124]);
                }
                stream.send(&answer).await?;
                return Ok(Some(negotiated));
            }
            option::ABORT => {
                stream.send(&option_reply(number, reply::ACK, b"")).await?;
                return Ok(None);
            }
            option::LIST if !data.is_empty() => refuse(stream, number, "a list has no arguments").await?,
            option::LIST => {
                // The one export has every name; the empty one is the default.
                stream.send(&option_reply(number, reply::SERVER, &0u32.to_be_bytes())).await?;
                stream.send(&option_reply(number, reply::ACK, b"")).await?;
            }
            option::STRUCTURED_REPLY if !data.is_empty() => refuse(stream, number, "this has no arguments").await?,
            option::STRUCTURED_REPLY => {
                negotiated.structured = true;
                stream.send(&option_reply(number, reply::ACK, b"")).await?;
            }
            option::INFO | option::GO => match wanted(&data) {
                Some((name, wanted)) => {
                    for answer in facts(offer, &name, &wanted, negotiated.structured) {
                        stream.send(&option_reply(number, reply::INFO, &answer)).await?;
                    }
                    stream.send(&option_reply(number, reply::ACK, b"")).await?;
                    if number == option::GO {
                        return Ok(Some(negotiated));
                    }
                }
                None => refuse(stream, number, "the lengths in this option do not fit").await?,
            },
            _ => stream.send(&option_reply(number, reply::UNSUPPORTED, b"")).await?,
        }
    }
}

async fn refuse(stream: &Stream, number: u32, why: &str) -> Result<(), Closed> {
    stream.send(&option_reply(number, reply::INVALID, why.as_bytes())).await
}

/// The name, and the kinds of information that a client requests.
pub(super) fn wanted(data: &[u8]) -> Option<(Vec<u8>, Vec<u16>)> {
    let name_bytes = u32::from_be_bytes(take(data, 0)?) as usize;
    let name = data.get(4..4usize.checked_add(name_bytes)?)?.to_vec();
    let rest = &data[4 + name_bytes..];
    let count = usize::from(u16::from_be_bytes(take(rest, 0)?));
    if rest.len() != 2 + 2 * count {
        return None;
    }
    let kinds = rest[2..].chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    Some((name, kinds))
}

/// The information: size and flags in any case, the rest on request.
fn facts(offer: &Export, name: &[u8], wanted: &[u16], structured: bool) -> Vec<Vec<u8>> {
    let with_kind = |kind: u16, rest: &[u8]| [&kind.to_be_bytes()[..], rest].concat();
    let size = [&offer.bytes.to_be_bytes()[..], &flags(offer, structured).to_be_bytes()].concat();
    let mut facts = vec![with_kind(info::EXPORT, &size)];
    if wanted.contains(&info::NAME) {
        facts.push(with_kind(info::NAME, name));
    }
    if wanted.contains(&info::DESCRIPTION) {
        facts.push(with_kind(info::DESCRIPTION, offer.description.as_bytes()));
    }
    if wanted.contains(&info::BLOCK_SIZE) {
        let preferred = offer.block_bytes.max(4096);
        // Any byte is accepted: a client that sees a block size refuses an export that ends within a block, such as an
        // image.
        let sizes = [1, preferred, PAYLOAD_MAX].map(u32::to_be_bytes).concat();
        facts.push(with_kind(info::BLOCK_SIZE, &sizes));
    }
    facts
}
