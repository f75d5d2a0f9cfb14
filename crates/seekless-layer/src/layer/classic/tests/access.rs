//! Aim: the users who may use a file may use its index, and no others. Method: access lists on files, set before and
//! after they have an index, in a directory with a default list.

use super::*;
use crate::fs::acl::{Acl, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use crate::fs::{FsError, SetAttr};
use crate::layer::classic::format::SUFFIX;

#[test]
fn an_index_has_the_list_of_its_file() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
        let (above, below) = (Client::new(fs.clone()), Client::new(lower.clone()));
        let list = |text: &str| text.parse::<Acl>().unwrap().to_xattr();
        let agree = async |path: &str, who: &str| {
            let both = [path.as_bytes().to_vec(), [path.as_bytes(), SUFFIX].concat()];
            let [file, index] = [below.stat(&both[0]).await.unwrap(), below.stat(&both[1]).await.unwrap()];
            assert_eq!(file.permissions, index.permissions, "{who}");
            let [file, index] =
                [below.get_xattr(&both[0], XATTR_ACL_ACCESS).await, below.get_xattr(&both[1], XATTR_ACL_ACCESS).await];
            assert_eq!(file, index, "{who}");
            file
        };
        above.mkdir(b"/d").await.unwrap();
        above.set_xattr(b"/d", XATTR_ACL_DEFAULT, &list("u::rwx,u:8:rwx,g::r-x,m::rwx,o::---")).await.unwrap();
        for path in [&b"/d/f"[..], b"/d/g"] {
            let file = above.create(path).await.unwrap();
            above.close(file).await.unwrap();
        }
        above.remove_xattr(b"/d/g", XATTR_ACL_ACCESS).await.unwrap();
        for path in [&b"/d/f"[..], b"/d/g"] {
            above.write_file(path, &text(30_000)).await.unwrap();
        }
        above.sync().await.unwrap();
        assert_eq!(agree("/d/f", "inherited").await, Ok(list("u::rw-,u:8:rwx,g::r-x,m::r--,o::---")));
        assert_eq!(agree("/d/g", "not inherited").await, Err(FsError::NoAttribute));
        let changes = SetAttr { permissions: Some(0o660), ..SetAttr::default() };
        above.setattr(b"/d/f", changes).await.unwrap();
        assert_eq!(agree("/d/f", "chmod").await, Ok(list("u::rw-,u:8:rwx,g::r-x,m::rw-,o::---")));
        let another = list("u::rw-,u:9:r--,g::r--,m::r--,o::---");
        above.set_xattr(b"/d/f", XATTR_ACL_ACCESS, &another).await.unwrap();
        assert_eq!(agree("/d/f", "another list").await, Ok(another));
        above.remove_xattr(b"/d/f", XATTR_ACL_ACCESS).await.unwrap();
        assert_eq!(agree("/d/f", "no list").await, Err(FsError::NoAttribute));
        fs.close().await.unwrap();
    });
}
