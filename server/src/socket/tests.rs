use super::*;

/// A path in a directory that is fit for a socket.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
    let path = dir.path().join("server.sock");
    (dir, path)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn directory_and_socket_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/cni/server.sock");
    let (socket, _listener) = Socket::listen(&path).unwrap();
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    socket.remove();
    assert!(!path.exists());
}

#[test]
fn a_directory_that_others_can_enter_or_that_is_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    DirBuilder::new().create(&open).unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let error = Socket::listen(&open.join("s")).unwrap_err();
    assert!(matches!(error, SocketError::Untrusted { mode: 0o755, .. }), "{error}");

    let private = dir.path().join("private");
    DirBuilder::new().mode(0o700).create(&private).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&private, &link).unwrap();
    let error = Socket::listen(&link.join("s")).unwrap_err();
    assert!(matches!(error, SocketError::NotADirectory(_)), "{error}");
    assert!(Socket::listen(Path::new("relative")).is_err());
}

#[test]
fn a_second_server_is_refused_and_a_stale_socket_replaced() {
    let (_dir, path) = place();
    let (first, listener) = Socket::listen(&path).unwrap();
    assert!(matches!(Socket::listen(&path), Err(SocketError::InUse(_))));

    drop((first, listener));
    let (second, listener) = Socket::listen(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (third, _listener) = Socket::listen(&path).unwrap();
    second.remove();
    assert!(path.exists(), "a server must not remove another's socket");
    drop(listener);
    third.remove();

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Socket::listen(&path), Err(SocketError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn of_servers_that_start_at_once_on_a_stale_socket_one_wins() {
    let (_dir, path) = place();
    // The window in which two could win is short.
    for _ in 0..200 {
        drop(UnixListener::bind(&path).unwrap());
        let starts = std::sync::Barrier::new(4);
        let start = || {
            starts.wait();
            Socket::listen(&path).ok()
        };
        let mut winners: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(winners.len(), 1);
        assert!(UnixStream::connect(&path).is_ok());
        winners.drain(..).for_each(|(socket, _listener)| socket.remove());
    }
}
